import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and two data nodes in one process: says where they are, and ends when nobody writes to it any more. */
public class Cluster {
    public static void main(String[] words) throws Exception {
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(new Configuration(), new File(words[0])).numDataNodes(2).build();
        cluster.waitActive();
        System.out.println("at " + cluster.getURI() + " " + cluster.getNameNode().getHttpAddress().getPort());
        System.in.read();
        System.exit(0);
    }
}
