import java.io.DataInputStream;
import java.io.DataOutputStream;
import org.roaringbitmap.RoaringBitmap;

/** Does what change.mjs does. */
class Change {
  public static void main(String[] none) throws Exception {
    var ids = new RoaringBitmap();
    ids.deserialize(new DataInputStream(System.in));
    System.err.println(ids.getCardinality());
    ids.remove(ids.first());
    ids.add((int) 4294967295L);
    var out = new DataOutputStream(System.out);
    ids.serialize(out);
    out.flush();
  }
}
