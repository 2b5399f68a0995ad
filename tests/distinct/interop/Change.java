import java.io.DataInputStream;
import java.io.DataOutputStream;
import org.roaringbitmap.RoaringBitmap;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** Does what change.mjs does, with bitmaps for 32 or 64 bits. */
class Change {
  public static void main(String[] bits) throws Exception {
    var in = new DataInputStream(System.in);
    var out = new DataOutputStream(System.out);
    if (bits[0].equals("64")) {
      var ids = new Roaring64NavigableMap();
      ids.deserializePortable(in);
      System.err.println(ids.getLongCardinality());
      ids.removeLong(ids.select(0));
      ids.addLong(4294967295L);
      ids.serializePortable(out);
    } else {
      var ids = new RoaringBitmap();
      ids.deserialize(in);
      System.err.println(ids.getCardinality());
      ids.remove(ids.first());
      ids.add((int) 4294967295L);
      ids.serialize(out);
    }
    out.flush();
  }
}
